-- What people call an export: as it stands in what was asked for, and here to be found by. Those made before have none.
ALTER TABLE exports ADD COLUMN name text;
