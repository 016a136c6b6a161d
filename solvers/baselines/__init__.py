"""What others do: policies that our planners are measured against."""
