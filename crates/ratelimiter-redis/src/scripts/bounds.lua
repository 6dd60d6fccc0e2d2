-- Whether new limits may be made for those that do not exist (TPL-07). Returns their number, or nil and the template of the first one.
-- Cost: 1 operation for each of them, and 1 for all.
local function check_instances(wanted, instances_max, per_second_max)
  local new, first = 0, nil
  for _, limit in ipairs(wanted) do
    local template = limit.known.template
    if template ~= '' and not limit.exists and not call('ZSCORE', instances_of(template), limit.key) then
      new, first = new + 1, first or template
    end
  end
  if new == 0 then
    return 0
  end
  local counts = call('HMGET', COUNTS, 'total', 'second', 'recent')
  local total, second, recent = tonumber(counts[1]) or 0, tonumber(counts[2]) or 0, tonumber(counts[3]) or 0
  if NOW - second >= 1000000 or NOW < second then
    second, recent = NOW, 0
  end
  -- The first request of a second may need more than the bound, so that it is not denied for ever.
  local is_within = (recent == 0 and per_second_max > 0) or recent + new <= per_second_max
  if total + new > instances_max or not is_within then
    return nil, first
  end
  return new, { 'second', text(second), 'recent', text(recent + new) }
end
