-- The definitions and their generation.
-- Cost: 2 operations.

is_current('', call('GET', META))
return { 'definitions', NOW, meta_generation, call('GET', PREFIX .. 'registry') or '' }
