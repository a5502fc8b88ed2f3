"""TFX's Trainer and Tuner with trainer_module inside, configured by typed settings."""
