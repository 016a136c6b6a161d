"""Answers what people ask: why a plan is as it is, what a change would do, what planning saves, and replays."""
