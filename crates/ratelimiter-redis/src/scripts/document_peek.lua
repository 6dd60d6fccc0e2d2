-- Which document is there and which is staged, and whether the server still has its locks, which are extended.
-- Answer: 1 or 0 for its lock as an owner, and for that of a change; 1 if there is a document, its version, what it was written as; what is
-- staged was written as.
-- Cost: 5 operations and those of `extend_locks`.

--@ primary
local owns, changes = extend_locks()
return {
  'peeked', owns and 1 or 0, changes and 1 or 0,
  call('HEXISTS', DOCUMENT, 'text'), version(), call('HGET', DOCUMENT, 'written_as') or '',
  call('HGET', STAGED, 'written_as') or '',
}
