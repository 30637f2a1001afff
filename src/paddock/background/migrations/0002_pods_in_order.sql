-- Reconciliation walks instances in the order of the runtime's lists, byte by byte, page by page: without this each page would sort
-- them all.

CREATE INDEX instances_pod_in_order ON instances (pod_name COLLATE "C") WHERE pod_name IS NOT NULL;
