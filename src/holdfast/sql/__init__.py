"""Every statement that Holdfast sends, as values: text, parameters and a decoder, one function each."""
