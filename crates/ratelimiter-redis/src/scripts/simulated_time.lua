-- For tests: microseconds since the Unix epoch, as a key says, so that hours pass at once.
-- Cost: 1 operation.
local NOW = tonumber(redis.call('GET', KEYS[1] .. 'now'))
