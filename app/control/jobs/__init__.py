"""Jobs: training and offline inference on the capacity that services leave (OLTunes' second class of work, Mudi).

`advance_jobs` follows their life through assignments and reports, `queue_jobs` chooses those that go into a problem,
`apply_answer` records what its plan means for them, and `job_status` writes the status of their objects.
"""
