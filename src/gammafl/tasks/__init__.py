"""Learning problems in torch: data, models, local training, evaluation."""
