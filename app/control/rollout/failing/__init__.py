"""What becomes of copies that do not start, start late, or stay down after their rollout."""
