-- The usage of limits.
--
-- ARGV: the generation; then for each limit its definition.
-- Answer for each limit: units in use, whether a decrease is pending, the capacity in force, the end of the period of a calendar limit or
-- 0, the debt.
--
-- Cost, with n limits: 2 operations; for each limit 1 to read it, 2 and 1 to store it if something has expired; then 1.

if not is_current(ARGV[1], call('GET', META)) then
  return { 'stale', NOW, meta_generation }
end
--@ instances
--@ collect
--@ debts

local keys, states, is_behind = {}, {}, false
for at = 2, #ARGV, 6 do
  local known = definition(at)
  local limit = limit_of(known.key, known)
  judge(limit)
  is_behind = is_behind or limit.is_behind
  keys[#keys + 1] = known.key
  local ends = 0
  if known.kind == 'k' then
    ends = expiry_of(limit)
  end
  if not ends then
    return answer('period', NOW)
  end
  states[#states + 1] = { text(limit.used), limit.is_decreasing and 1 or 0, text(limit.ceiling), ends }
end
if is_behind then
  return answer('again')
end
for index, debt in ipairs(call('HMGET', DEBTS, unpack(keys))) do
  states[index][5] = units_of_debt(debt)
end
return answer('states', NOW, states)
