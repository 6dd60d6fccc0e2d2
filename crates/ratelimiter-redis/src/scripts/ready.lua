-- Whether requests can be decided: scripts run, and Redis accepts writes (RDS-06).
-- Answer: nothing more.
-- Cost: 1 operation.

call('SET', PREFIX .. 'ready', '1', 'PX', '1000')
return { 'ready', NOW }
