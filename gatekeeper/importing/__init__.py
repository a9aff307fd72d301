"""Results that other programs measured, as arms that can be judged. Needs none of those programs."""
