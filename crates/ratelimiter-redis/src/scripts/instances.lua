-- The counts of limits that were made from templates. The functions are declared in the prelude.

local COUNTS = PREFIX .. 'instance_counts'
-- Longer than a lease can live without a renew: 64 days, in milliseconds.
local LONG_MS = 5529600000

local function instances_of(template)
  return PREFIX .. 'instances:' .. template
end

-- Lets the counts of a template live longer. A sweep does so, too, for as long as there are servers.
-- Cost: 2 operations.
local function keep_counts(template)
  call('PEXPIRE', instances_of(template), LONG_MS)
  call('PEXPIRE', COUNTS, LONG_MS)
end

-- Counts a limit that was made from a template.
-- Cost: 1 operation; 5 if it is new.
add_instance = function(template, key)
  if call('ZADD', instances_of(template), 0, key) == 1 then
    call('HINCRBY', COUNTS, template, 1)
    call('HINCRBY', COUNTS, 'total', 1)
    keep_counts(template)
  end
end

-- Cost: 1 operation; 3 if it was counted.
remove_instance = function(template, key)
  if call('ZREM', instances_of(template), key) == 1 then
    if call('HINCRBY', COUNTS, template, -1) <= 0 then
      call('HDEL', COUNTS, template)
    end
    call('HINCRBY', COUNTS, 'total', -1)
  end
end

-- Mends the count of a template, if its list was lost.
-- Cost: 2 operations; 2 more if it is wrong.
local function recount(template)
  local count, counted = call('ZCARD', instances_of(template)), tonumber(call('HGET', COUNTS, template)) or 0
  if count ~= counted then
    call('HINCRBY', COUNTS, 'total', count - counted)
    if count == 0 then
      call('HDEL', COUNTS, template)
    else
      call('HSET', COUNTS, template, count)
    end
  end
end
