"""What everything else stands on and what knows nothing of capsule networks but their types: errors, files, devices."""
