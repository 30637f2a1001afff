"""What charts, counts and pages read, so that none of them reads the jobs themselves."""
