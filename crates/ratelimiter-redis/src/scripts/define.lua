-- Replaces the definitions.
--
-- ARGV: the generation that the change is based on, the new one, the new limits document; the number of deleted limits, and their keys; then for
-- each limit that is defined: its new kind, whether its resets change, and the definition that governed the key so far.
--
-- Cost: 4 operations; 5 for each deleted limit; for each other one 2, and those of `collect`; 1 to store it if it is in use or its resets change, and
-- 3 if it was made from a template.

if not is_current(ARGV[1], call('GET', META)) then
  return { 'stale', NOW, meta_generation }
end
--@ instances
--@ collect

local deleted = {}
for number = 1, tonumber(ARGV[4]) do
  deleted[number] = ARGV[4 + number]
end

local is_behind = false
for at = 5 + #deleted, #ARGV, 8 do
  local kind, changes_resets, before = ARGV[at], ARGV[at + 1] == '1', definition(at + 2)
  local limit = limit_of(before.key)
  limit.before = before
  is_behind = is_behind or limit.is_behind
  if limit.exists and limit.kind == before.kind then
    -- The capacity in force is that of the definition so far.
    limit.known = before
    judge(limit)
    limit.cap, limit.is_dirty = limit.ceiling, true
  end
  -- What a template governed goes on under a definition of its own, if that is of its kind (TPL-03).
  local debt = call('HGET', DEBTS, before.key)
  local is_used = limit.exists and (limit.used > 0 or limit.open > 0)
  if (is_used and limit.kind ~= kind) or (debt and debt:sub(1, 1) ~= kind) then
    return answer(limit.is_behind and 'again' or 'conflict', NOW, before.key, is_used and limit.kind or debt:sub(1, 1))
  end
  limit.is_replaced = limit.exists and limit.kind ~= kind
  if changes_resets and limit.ends <= NOW and not limit.is_behind then
    -- The current period of a calendar limit goes on; the new resets apply from its end.
    local ends = expiry_of({ known = before, ends = 0 })
    if not ends then
      return answer('period', NOW)
    end
    limit.ends = ends
    limit.kind, limit.is_dirty = 'k', true
    limit.kept_until, limit.has_new_ttl = math.max(limit.kept_until, limit.ends + MINUTE), true
  end
end
if is_behind then
  return answer('again')
end

-- First, since a user may lack the right to the channel, and nothing may be half done. What was collected is stored.
local published = redis.pcall('PUBLISH', PREFIX .. 'changes', ARGV[2])
if type(published) == 'table' then
  save_limits()
  return published
end
for _, limit in ipairs(limits) do
  if limit.before.template ~= '' then
    remove_instance(limit.before.template, limit.key)
    limit.template = ''
  end
  if limit.is_replaced then
    clear(limit)
  end
end
for _, key in ipairs(deleted) do
  clear(limit_of(key))
  call('HDEL', DEBTS, key)
end
call('SET', PREFIX .. 'registry', ARGV[3])
meta_generation = ARGV[2]
save_meta()
return answer('defined', NOW)
