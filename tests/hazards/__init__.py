"""What must do no harm: odd inputs, forged files, faults; with the scripts of `make fuzz` and `make faults`."""
