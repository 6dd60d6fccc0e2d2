-- Replaces the definitions.
--
-- ARGV: the generation that the change is based on, the new one, the new limits document;
-- the number of deleted limits, and their keys; the number of limits that are defined newly, and the key and kind of each; then for each
-- calendar limit whose resets change: key, a moment, and the reset that follows it by the definition so far.
--
-- Cost: 4 operations; 3 for each deleted limit, 1 for each new one and a few if it was made from a template, 3 for each changed calendar.

if not is_current(ARGV[1]) then
  return { 'stale' }
end
local at = 4
local deleted, new = {}, {}
for number = 1, tonumber(ARGV[at]) do
  deleted[number] = ARGV[at + number]
end
at = at + 1 + #deleted
for number = 1, tonumber(ARGV[at]) do
  new[number] = { key = ARGV[at + number * 2 - 1], kind = ARGV[at + number * 2] }
end
at = at + 1 + #new * 2

-- A limit that was made from a template and is in use goes on under its own definition, if that is of its kind (TPL-03).
local taken_over, is_behind = {}, false
for _, one in ipairs(new) do
  local limit = limit_of(one.key)
  is_behind = is_behind or limit.is_behind
  if limit.exists then
    if limit.kind ~= one.kind and (limit.used > 0 or limit.open > 0) and not limit.is_behind then
      return answer('conflict', NOW, one.key, limit.kind)
    end
    limit.is_replaced = limit.kind ~= one.kind
    taken_over[#taken_over + 1] = limit
  end
  local debt = call('HGET', DEBTS, one.key)
  if debt and debt:sub(1, 1) ~= one.kind then
    return answer('conflict', NOW, one.key, debt:sub(1, 1))
  end
end
local calendars = {}
for first = at, #ARGV, 3 do
  local limit = limit_of(ARGV[first])
  if limit.exists and limit.ends and limit.ends > NOW then
    limit.keeps_end = true
  elseif NOW < tonumber(ARGV[first + 1]) or NOW >= tonumber(ARGV[first + 2]) then
    return answer('period', NOW)
  end
  calendars[#calendars + 1] = { limit = limit, ends = tonumber(ARGV[first + 2]) }
end
if is_behind then
  return answer('again')
end

for _, limit in ipairs(taken_over) do
  if limit.template ~= '' then
    remove_instance(limit.template, limit.key)
  end
  limit.template, limit.is_dirty = '', true
  if limit.is_replaced then
    call('UNLINK', limit.name, limit.live)
    limit.is_dirty = false
  end
end
-- The current period of a calendar limit goes on; the new resets apply from its end.
for _, calendar in ipairs(calendars) do
  local limit = calendar.limit
  if not limit.keeps_end then
    limit.kind, limit.ends, limit.is_dirty = 'k', calendar.ends, true
    limit.kept_until, limit.has_new_ttl = calendar.ends + MINUTE, true
  end
end
save_limits()
for _, key in ipairs(deleted) do
  call('UNLINK', PREFIX .. ':limit:' .. key, PREFIX .. ':live:' .. key)
  call('HDEL', DEBTS, key)
end
call('SET', PREFIX .. ':registry', ARGV[3])
call('HSET', META, 'generation', ARGV[2])
call('PUBLISH', PREFIX .. ':changes', ARGV[2])
return { 'defined', NOW }
