"""Do the parts of a recipe fit each other? Fields edit by edit, states pass by pass, built on the meta device."""
