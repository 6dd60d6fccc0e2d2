-- Stores a document beside the present one, in the place of what was staged before. That is its first write, so that a full Redis refuses it.
--
-- ARGV: the name of the change, the text.
-- Answer: `staged` with the version of the present document, or `lost`.
-- Cost: 2 operations and those of `locks`.

if not has_locks() then
  return { 'lost' }
end
local before = version()
call('HSET', STAGED, 'text', ARGV[6], 'version', string.format('%.0f', (tonumber(before) or 0) + 1), 'written_as', ARGV[5])
return { 'staged', before }
