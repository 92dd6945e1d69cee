"""pflsim: an asynchronous message-passing simulator for personalised federated learning."""
