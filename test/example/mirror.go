package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"warmpool.dev/controller/pkg/freshness"
)

// The label, and the value of it, of the Deployments that have a ConfigMap, and of the
// ConfigMaps.
const (
	mirrorLabel = "example.com/mirror"
	mirrored    = mirrorLabel + "=true"
)

// mirror keeps for each Deployment one ConfigMap that repeats its replicas and image.
type mirror struct {
	kube        kubernetes.Interface
	deployments cache.Store
	configMaps  cache.Indexer
}

// docs: reconcile

// reconcile makes, changes or removes the ConfigMaps of one Deployment. That there is a
// ConfigMap already is known from the cache alone: the names are random, as those of Pods
// are, so the API server would take a second one.
func (m *mirror) reconcile(ctx context.Context, key cache.ObjectName) (freshness.Result, error) {
	deployment, configMaps := m.read(key)
	if deployment == nil || deployment.DeletionTimestamp != nil {
		return freshness.Result{}, nil // the garbage collector takes what it owned
	}
	err := freshness.Confirm(ctx, objects(deployment, configMaps), func() []metav1.Object { return objects(m.read(key)) })
	switch {
	case err != nil:
		return freshness.Result{}, err
	case len(configMaps) == 0:
		return freshness.Result{}, m.create(ctx, deployment)
	}
	for _, surplus := range configMaps[1:] {
		if err := m.remove(ctx, surplus); err != nil {
			return freshness.Result{}, err
		}
	}
	return freshness.Result{}, m.update(ctx, deployment, configMaps[0])
}

// docs: end

// read returns what the caches hold: a Deployment, or nil, and its ConfigMaps, the oldest
// first.
func (m *mirror) read(key cache.ObjectName) (*appsv1.Deployment, []*corev1.ConfigMap) {
	found, _, _ := m.deployments.GetByKey(key.String()) // it returns no error
	deployment, ok := found.(*appsv1.Deployment)
	if !ok {
		return nil, nil
	}
	var configMaps []*corev1.ConfigMap
	owned, _ := m.configMaps.ByIndex(byOwner, string(deployment.UID)) // an error if there is no such index
	for _, obj := range owned {
		configMaps = append(configMaps, obj.(*corev1.ConfigMap))
	}
	slices.SortFunc(configMaps, func(a, b *corev1.ConfigMap) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return deployment, configMaps
}

// objects are those that a decision is made on.
func objects(deployment *appsv1.Deployment, configMaps []*corev1.ConfigMap) []metav1.Object {
	var all []metav1.Object
	if deployment != nil {
		all = append(all, deployment)
	}
	for _, configMap := range configMaps {
		all = append(all, configMap)
	}
	return all
}

// dataOf is what the ConfigMap of a Deployment says.
func dataOf(deployment *appsv1.Deployment) map[string]string {
	return map[string]string{
		"replicas": strconv.Itoa(int(ptr.Deref(deployment.Spec.Replicas, 1))),
		"image":    deployment.Spec.Template.Spec.Containers[0].Image,
	}
}

// create makes the ConfigMap of a Deployment. The name is chosen here and not by the API
// server, so that a creation whose answer is lost can be looked for.
func (m *mirror) create(ctx context.Context, deployment *appsv1.Deployment) error {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            deployment.Name + "-" + utilrand.String(8),
			Labels:          map[string]string{mirrorLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Data: dataOf(deployment),
	}
	if _, err := m.kube.CoreV1().ConfigMaps(deployment.Namespace).Create(ctx, configMap, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create the ConfigMap of deployment %s/%s: %w", deployment.Namespace, deployment.Name, err)
	}
	return nil
}

// update writes what has changed, if anything has, on the condition that nobody else has
// changed the ConfigMap.
func (m *mirror) update(ctx context.Context, deployment *appsv1.Deployment, configMap *corev1.ConfigMap) error {
	wanted := configMap.DeepCopy()
	wanted.Data = dataOf(deployment)
	patch, err := freshness.MergePatch(configMap, wanted, freshness.PatchOptions{})
	if err != nil || patch == nil {
		return err
	}
	if _, err := m.kube.CoreV1().ConfigMaps(configMap.Namespace).Patch(ctx, configMap.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("update configmap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	return nil
}

// remove deletes a ConfigMap as it was seen, and no other.
func (m *mirror) remove(ctx context.Context, configMap *corev1.ConfigMap) error {
	err := m.kube.CoreV1().ConfigMaps(configMap.Namespace).Delete(ctx, configMap.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &configMap.UID, ResourceVersion: &configMap.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete configmap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	return nil
}
