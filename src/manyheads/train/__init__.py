"""The paper's section 5: the loss (5.4) and the schedule of the learning rate (5.3)."""
