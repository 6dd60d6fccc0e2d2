-- Replaces the document with the staged one. That takes no memory, so a full Redis is noticed before, when the document is staged.
--
-- ARGV: the name of the change, the version of the document that it replaces.
-- Answer: `committed`, `lost`, or `changed` if another document is staged or was committed.
-- Cost: 4 operations and those of `locks`.

--@ primary
if not has_locks() then
  return { 'lost' }
end
if call('HGET', STAGED, 'written_as') ~= ARGV[5] or version() ~= ARGV[6] then
  return { 'changed' }
end
call('RENAME', STAGED, DOCUMENT)
return { 'committed' }
