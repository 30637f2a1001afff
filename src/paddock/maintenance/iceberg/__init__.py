"""What works on the tables themselves. Only workers import it: `serve` has neither PyIceberg nor a credential."""
