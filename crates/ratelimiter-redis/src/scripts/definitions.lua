-- The definitions and their generation.
-- Cost: 2 operations.

return { 'definitions', NOW, call('HGET', META, 'generation') or '', call('GET', PREFIX .. ':registry') or '' }
