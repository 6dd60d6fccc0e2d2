-- Lets limits that were made from a template follow a change of templates (TPL-04): each goes on under the template that governs it now. One that
-- nothing governs, or a template of another kind, is forgotten.
--
-- ARGV: the generation, the template so far; then the definition of each limit.
--
-- Cost, for each limit: 1 operation, and those of `collect`; if it changes, 1 to store it and up to 8 to count it elsewhere.

if not is_current(ARGV[1], call('GET', META)) then
  return { 'stale', NOW, meta_generation }
end
--@ instances
--@ collect

local before = ARGV[2]
for at = 3, #ARGV, 6 do
  local known = definition(at)
  local key = known.key
  local limit = limit_of(key, known)
  if known.kind == '' or not limit.exists then
    local debt = call('HGET', DEBTS, key)
    if limit.exists then
      clear(limit)
    end
    if debt and debt:sub(1, 1) ~= known.kind then
      call('HDEL', DEBTS, key)
      debt = false
    end
    if not debt or known.template ~= before then
      remove_instance(before, key)
    end
    if debt and known.template ~= '' then
      add_instance(known.template, key)
    end
  else
    judge(limit)
    if limit.cap ~= limit.ceiling or limit.template ~= known.template then
      limit.cap, limit.template, limit.is_dirty = limit.ceiling, known.template, true
    end
    if known.template ~= before then
      remove_instance(before, key)
      if known.template ~= '' then
        add_instance(known.template, key)
      end
    end
  end
end
return answer('realigned', NOW)
