-- What the scripts of a document share: the definitions of another backend, which servers replace in two steps under locks (REG-01).
-- Each of these scripts begins with this text.
--
-- KEYS[1] is the prefix of all keys, with its hash tag and a colon:
--   document               hash    the present document: `text`, `version`, and `written_as`, the name of the change that wrote it
--   document:staged        hash    the document that is to replace it, with the same fields
--   document:owners        hash    the servers that own the document, by name: "x" if it is the only one, else "s"; a blank; its description
--   document:owner:<name>  string  the token of such a server. It owns the document for as long as this exists
--   document:change        string  the token of the server that makes a change
--   document:waiting       string  the name of the server that makes the next one
--
-- A lock is a key with a token and a TTL, which its holder extends. It may end while the holder believes that it has it, so every write
-- compares the tokens first. Everything but the first two keys has a TTL.
--
-- ARGV: the name of the server, the TTL of its locks in milliseconds, the tokens of the locks that it has: as an owner and for a change, each
-- empty if it has none; then the arguments of the script.

local call = redis.call
local DOCUMENT = KEYS[1] .. 'document'
local STAGED, OWNERS, CHANGE = DOCUMENT .. ':staged', DOCUMENT .. ':owners', DOCUMENT .. ':change'
local NAME, TTL, OWNER_TOKEN, CHANGE_TOKEN = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local OWNER = DOCUMENT .. ':owner:' .. NAME

-- Whether the server still has the locks of which it has a token: as an owner, and for a change.
-- Cost: 2 operations for an owner, 1 for a change.
local function locks()
  local owns = OWNER_TOKEN == '' or (call('GET', OWNER) == OWNER_TOKEN and call('HEXISTS', OWNERS, NAME) == 1)
  return owns, CHANGE_TOKEN == '' or call('GET', CHANGE) == CHANGE_TOKEN
end

-- Whether the server has a lock, and all of which it has a token: it may write.
local function has_locks()
  local owns, changes = locks()
  return owns and changes and OWNER_TOKEN .. CHANGE_TOKEN ~= ''
end

-- The TTL of the list of owners. The locks of others may last longer.
-- Cost: 1 operation.
local function owners_ttl()
  return math.max(tonumber(TTL), call('PTTL', OWNERS))
end

-- Extends the locks that the server has, as far as Redis lets it.
-- Cost: 3 operations for an owner, 1 for a change, and those of `locks`.
local function extend_locks()
  local owns, changes = locks()
  if owns and OWNER_TOKEN ~= '' then
    redis.pcall('PEXPIRE', OWNER, TTL)
    redis.pcall('PEXPIRE', OWNERS, owners_ttl())
  end
  if changes and CHANGE_TOKEN ~= '' then
    redis.pcall('PEXPIRE', CHANGE, TTL)
  end
  return owns, changes
end

-- The version of the present document as text; 0 if there is none.
-- Cost: 1 operation.
local function version()
  return call('HGET', DOCUMENT, 'version') or '0'
end
