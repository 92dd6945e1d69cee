"""The schedules: one file each, who works when; pure."""
