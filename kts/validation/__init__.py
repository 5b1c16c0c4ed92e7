"""What ``kts.validator`` is made of: refusals as errors, and sets written anew."""
