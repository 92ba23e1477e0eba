"""tilec's own schedules for this CPU against what a person would otherwise call."""
