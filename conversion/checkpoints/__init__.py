"""Match the variables of a checkpoint to the weights of a model."""
