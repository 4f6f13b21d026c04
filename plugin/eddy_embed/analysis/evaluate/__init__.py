"""Measuring: tasks from local folders, scores with intervals, baselines and cost beside them."""
