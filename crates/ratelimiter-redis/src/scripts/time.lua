-- Microseconds since the Unix epoch, by the clock of Redis (RDS-02).
-- Cost: 1 operation.
local time = redis.call('TIME')
local NOW = time[1] * 1000000 + time[2]
