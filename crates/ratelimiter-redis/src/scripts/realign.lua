-- Moves limits that were made from a template to the template that governs them now, or forgets them.
--
-- ARGV: the generation, the template so far; then for each limit its key, and the key and kind of the new template; empty if nothing governs
-- it, with the kind `defined` if it has a definition of its own. A limit of another kind is forgotten: the new template makes another one.
--
-- Cost, for each limit: 4 operations, and up to 4 more to count it.

if not is_current(ARGV[1]) then
  return { 'stale' }
end
local before = ARGV[2]
for at = 3, #ARGV, 3 do
  local key, template, kind = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local name = PREFIX .. ':limit:' .. key
  remove_instance(before, key)
  local is_kind = call('HGET', name, 'kind')
  if template ~= '' and (not is_kind or is_kind == kind) then
    if is_kind then
      call('HSET', name, 'template', template)
    end
    add_instance(template, key)
  elseif kind ~= 'defined' then
    call('UNLINK', name, PREFIX .. ':live:' .. key)
    call('HDEL', DEBTS, key)
  end
end
return { 'realigned', NOW }
