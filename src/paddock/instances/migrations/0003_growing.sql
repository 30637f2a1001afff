-- More memory that an instance was allowed and does not have yet. It counts as if it had it: whoever asks for memory meanwhile
-- would be given the same room else.
ALTER TABLE instances ADD COLUMN growing_to_gb int;
