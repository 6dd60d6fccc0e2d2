-- Ends the locks of the server, if it still has them.
-- Cost: up to 6 operations.

--@ primary
if OWNER_TOKEN ~= '' and call('GET', OWNER) == OWNER_TOKEN then
  call('DEL', OWNER)
  call('HDEL', OWNERS, NAME)
end
if CHANGE_TOKEN ~= '' and call('GET', CHANGE) == CHANGE_TOKEN then
  call('DEL', CHANGE)
end
return { 'released' }
