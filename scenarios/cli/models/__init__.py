"""Commands that compute on paper: no fabric comes up."""
