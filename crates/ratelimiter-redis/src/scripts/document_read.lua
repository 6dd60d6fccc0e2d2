-- The present document and the staged one.
-- Answer: for both, 1 if it is there, its version, what it was written as, its text.
-- Cost: 3 operations.

--@ primary
local function fields_of(name)
  local fields = call('HMGET', name, 'text', 'version', 'written_as')
  return fields[1] and 1 or 0, fields[2] or '0', fields[3] or '', fields[1] or ''
end

local is_there, version, written_as, text = fields_of(DOCUMENT)
return { 'read', is_there, version, written_as, text, fields_of(STAGED) }
