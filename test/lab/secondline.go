package lab

// The second line of defence: what makes a write harmless that no guard has stopped.

func secondLine() []row {
	return []row{
		{
			guard: "tests of the hand-out", file: "pkg/pool/objects.go", story: handedOutTwice, creates: 3,
			out: []edit{{"pkg/pool/objects.go", `		{"test", "/metadata/uid", pod.UID},
		{"test", "/metadata/deletionTimestamp", nil},
		{"test", ownerPath + "/uid", pod.OwnerReferences[owner].UID},
		{"test", ownerPath + "/controller", true},
		{"test", readyPath + "/type", corev1.PodReady},
		{"test", readyPath + "/status", corev1.ConditionTrue},
`, "		{\"test\", readyPath + \"/type\", corev1.PodReady},\n"}},
			taken:  "the patch tests nothing that matters",
			fault:  "two leaders overlap, and one of them is blind for Pods",
			remark: remarkTestsOfTheHandOut,
		},
		{
			guard: "preconditions of a deletion", file: "writes.go", story: claimedPodDeleted, creates: 2, deletes: 1,
			out:    []edit{{"writes.go", "		Preconditions: &metav1.Preconditions{UID: &d.Pod.UID, ResourceVersion: &d.Pod.ResourceVersion},\n", ""}},
			fault:  "two leaders overlap, and one of them is blind for Pods; the pool is made smaller",
			remark: remarkPreconditionsOfADeletion,
		},
		{
			guard: "look at the pool before creating", file: "writes.go", story: poolDeletedUnseen, creates: 4,
			out: []edit{{"writes.go", "live, err := c.warmpool.WarmpoolV1alpha1().WarmPools(warmPool.Namespace).Get(ctx, warmPool.Name, metav1.GetOptions{})",
				"live, err := warmPool, error(nil)"}},
			fault:  "the pool is deleted, its events are held back, and those of its Pods aren't",
			remark: remarkLookAtThePoolBeforeCreating,
		},
		{
			guard: "no write that says nothing new", file: "writes.go", story: heartbeats, creates: 4,
			out:    []edit{{"writes.go", "	if change == pool.Unchanged {\n		return 0\n	}\n", ""}},
			fault:  "none; each of four Pods gets ten heartbeats from its kubelet",
			remark: remarkNoWriteThatSaysNothingNew,
		},
	}
}
