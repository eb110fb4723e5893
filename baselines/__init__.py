"""Not a namespace package: nobody else's `baselines` comes before it."""
