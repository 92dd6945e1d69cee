"""What every method must satisfy, as checks that a researcher can call on a method of their own."""
