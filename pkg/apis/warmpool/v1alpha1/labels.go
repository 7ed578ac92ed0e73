package v1alpha1

// Labels that the controller sets on every Pod it makes. A pool's template and
// a claim's podMetadata can't set or remove them.
const (
	// LabelPrefix is the prefix of all the labels and annotations reserved here.
	LabelPrefix = "warmpool.dev/"
	// LabelPool holds the name of the WarmPool that the Pod was made for, from
	// its creation to its end, also after the Pod was handed out.
	LabelPool = LabelPrefix + "pool"
	// LabelState is StateIdle or StateClaimed. It is for selectors and for
	// people; the truth is the Pod's controller owner.
	LabelState = LabelPrefix + "state"
	// LabelTemplateHash holds the hash of the template that the Pod was made from.
	LabelTemplateHash = LabelPrefix + "template-hash"
	// LabelClaim holds the name of the PodClaim that took the Pod.
	LabelClaim = LabelPrefix + "claim"
)

// Values of LabelState.
const (
	// StateIdle marks a Pod that no claim has.
	StateIdle = "idle"
	// StateClaimed marks a Pod that was handed out.
	StateClaimed = "claimed"
)
