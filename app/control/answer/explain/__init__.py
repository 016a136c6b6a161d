"""Why: of a service, an instance, a job and a plan. Pure: from a problem and its plan to numbers and sentences."""
