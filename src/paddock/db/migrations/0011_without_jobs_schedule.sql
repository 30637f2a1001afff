-- no-transaction
-- jobs_schedule_walk serves whatever this one did. Waits for whoever reads with it, and keeps nobody waiting.
DROP INDEX CONCURRENTLY IF EXISTS jobs_schedule;
