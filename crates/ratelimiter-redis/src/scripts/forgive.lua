-- Sets the debt of a limit to 0, and tells what it was.
--
-- ARGV: the generation, the definition.
-- Cost: 4 operations; 1 more for a limit that was made from a template and is not in use.

if not is_current(ARGV[1], call('GET', META)) then
  return { 'stale', NOW, meta_generation }
end
--@ instances
--@ debts

local known = definition(2)
local debt = units_of_debt(call('HGET', DEBTS, known.key))
call('HDEL', DEBTS, known.key)
if known.template ~= '' and call('EXISTS', PREFIX .. 'limit:' .. known.key) == 0 then
  remove_instance(known.template, known.key)
end
return { 'forgiven', NOW, debt }
