"""What a person on call does: each action and each check on real servers."""
