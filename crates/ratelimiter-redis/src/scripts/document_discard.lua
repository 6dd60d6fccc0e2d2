-- Removes what is staged.
--
-- ARGV: the name of the change; empty for any.
-- Answer: `discarded`, also if something else is staged, or `lost`.
-- Cost: 3 operations and those of `locks`.

--@ primary
if not has_locks() then
  return { 'lost' }
end
if ARGV[5] == '' or call('HGET', STAGED, 'written_as') == ARGV[5] then
  call('DEL', STAGED)
end
return { 'discarded' }
