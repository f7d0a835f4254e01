"""Platform-neutral drawing: views, steps and text turned into values that any platform can draw."""
