"""A folder of anything, as course systems export it, to submissions; opens no notebook."""
